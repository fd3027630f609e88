// Sixteen weights that are the same for every item, each times one by value.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 16u; ++k) {
    h = h * 2654435761u + 12345u;
    const unsigned int at = 16u + (h >> 8u) % (4u * rows - 16u);
    value += ((const float*)TABLE)[k] * ((const float*)TABLE)[at];
}
