// Every row, in order.
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    value += fabsf(x - row.x) * row.y + (x + row.z) * row.w;
}
