// Sixteen rows by value, each on its own.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 16u; ++k) {
    h = h * 2654435761u + 12345u;
    value += TABLE[(h >> 8u) % rows].x;
}
