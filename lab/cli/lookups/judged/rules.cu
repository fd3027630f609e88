// Thirty-two rows from where the group begins.
const unsigned int start = i / 256u * 5u;
for (unsigned int k = 0u; k < 32u; ++k) {
    const float4 row = TABLE[(start + k) % rows];
    value += (x < row.x ? row.z : row.y) * row.w;
}
