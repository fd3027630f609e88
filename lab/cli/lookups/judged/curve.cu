// A smooth curve through four neighbouring numbers.
const unsigned int h = (unsigned int)(x * 16777216.0f) * 2654435761u;
const unsigned int at = (h >> 8u) % (4u * rows - 3u);
const float t = (float)(h & 255u) / 256.0f;
const float a = ((const float*)TABLE)[at], b = ((const float*)TABLE)[at + 1u];
const float c = ((const float*)TABLE)[at + 2u], d = ((const float*)TABLE)[at + 3u];
value = b + 0.5f * t * (c - a + t * (2.0f * a - 5.0f * b + 4.0f * c - d + t * (3.0f * (b - c) + d - a)));
