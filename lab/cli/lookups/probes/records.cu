// Eight whole rows by value, each on its own.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 8u; ++k) {
    h = h * 2654435761u + 12345u;
    const float4 row = TABLE[(h >> 8u) % rows];
    value += row.x * row.y + row.z * row.w;
}
