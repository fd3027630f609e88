// Sixty-four rows from where the group begins.
const unsigned int start = i / 256u * 31u;
for (unsigned int k = 0u; k < 64u; ++k) {
    const float4 row = TABLE[(start + k) % rows];
    value = (value * x + row.x) * row.y + row.z * x + row.w;
}
