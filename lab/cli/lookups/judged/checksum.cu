// Four numbers by value, each found with the one before.
const unsigned int h = (unsigned int)(x * 16777216.0f);
unsigned int sum = 65535u;
for (unsigned int k = 0u; k < 4u; ++k) {
    const unsigned int at = (((sum ^ (h >> (6u * k))) * 2654435761u) >> 8u) % (4u * rows);
    sum = sum * 31u + (unsigned int)(fabsf(((const float*)TABLE)[at]) * 65536.0f);
}
value = (float)(sum & 65535u) / 65536.0f;
