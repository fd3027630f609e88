// Every row, in order, with much to compute for each of its numbers.
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    const float near = x * row.x + row.y;
    value += row.z * near / (1.0f + near * near) + sqrtf(fabsf(near)) * row.w;
}
