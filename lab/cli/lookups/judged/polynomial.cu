// Horner's rule over the whole table.
#pragma unroll 64
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    value = (((value * x + row.x) * x + row.y) * x + row.z) * x + row.w;
}
