// The distance to the nearest of the table's points.
value = 1e30f;
#pragma unroll 64
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    const float dx = x - row.x, dy = 0.5f - row.y;
    value = fminf(value, dx * dx + dy * dy);
}
