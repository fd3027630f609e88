// Neighbours read neighbouring rows, four times.
for (unsigned int k = 0u; k < 4u; ++k) {
    const float4 row = TABLE[(i + 32u * k) % rows];
    value = value * row.x + row.y * x;
}
