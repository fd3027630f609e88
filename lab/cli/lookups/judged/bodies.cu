// The pull of every body of the table.
#pragma unroll 64
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    const float dx = row.x - x, dy = row.y - 0.5f, dz = row.z - 0.5f;
    value += row.w / sqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
}
