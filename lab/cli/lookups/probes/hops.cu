// Eight single numbers by value, each found with the one before.
unsigned int h = (unsigned int)(x * 16777216.0f);
for (unsigned int k = 0u; k < 8u; ++k) {
    const float word = ((const float*)TABLE)[(h >> 8u) % (4u * rows)];
    value += word;
    h = h * 2654435761u + (unsigned int)(fabsf(word) * 65536.0f);
}
