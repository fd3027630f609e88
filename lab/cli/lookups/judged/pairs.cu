// Six pairs of neighbouring numbers by value, each on its own.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 6u; ++k) {
    h = h * 2246822519u + 374761393u;
    const unsigned int at = (h >> 7u) % (4u * rows - 1u);
    value += ((const float*)TABLE)[at] * ((const float*)TABLE)[at + 1u];
}
