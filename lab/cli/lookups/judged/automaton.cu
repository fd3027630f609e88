// Twelve steps of a machine whose table says where it goes next.
const unsigned int all = 4u * rows;
unsigned int at = (unsigned int)(x * 65536.0f) % all;
for (unsigned int k = 0u; k < 12u; ++k) {
    const float word = ((const float*)TABLE)[at];
    value += word;
    at = (5u * at + (unsigned int)(fabsf(word) * 65536.0f) + 1u) % all;
}
