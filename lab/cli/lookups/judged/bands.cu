// Eight rows of the group's own band.
const unsigned int band = i / 256u * 8u;
for (unsigned int k = 0u; k < 8u; ++k) {
    const float4 row = TABLE[(band + k) % rows];
    value = value * row.x + fminf(fmaxf(x, row.y), row.z) * row.w;
}
