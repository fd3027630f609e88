// Light from every row that faces the item.
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    value += fmaxf(x * row.x - row.y, 0.0f) * (row.z + row.w);
}
