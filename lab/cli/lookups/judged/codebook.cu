// Eight rows by value, all among the first sixteen.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 8u; ++k) {
    h = h * 2654435761u + 12345u;
    const float4 row = TABLE[(h >> 8u) % 16u];
    value += row.x * x + row.y + row.z + row.w;
}
