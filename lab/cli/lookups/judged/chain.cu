// Eight rows by value, each found by the one before. The fourth number of a row is between zero and one.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 8u; ++k) {
    const float4 row = TABLE[(h >> 8u) % rows];
    value += row.y;
    h = h * 2654435761u + (unsigned int)(row.w * 65536.0f);
}
