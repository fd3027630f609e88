// Sixteen single numbers by value, each on its own.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 16u; ++k) {
    h = h * 2654435761u + 12345u;
    value += ((const float*)TABLE)[(h >> 8u) % (4u * rows)];
}
