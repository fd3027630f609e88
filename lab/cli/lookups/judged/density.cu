// A sum of bells, one for each row.
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    const float away = (x - row.x) * row.z;
    value += row.w * expf(-away * away) + row.y;
}
