// Two matrices of three rows by value, weighted.
const unsigned int h = (unsigned int)(x * 16777216.0f) * 2654435761u;
const unsigned int first = (h >> 8u) % (rows / 3u) * 3u;
const unsigned int second = (h >> 12u) % (rows / 3u) * 3u;
for (unsigned int k = 0u; k < 3u; ++k) {
    const float4 a = TABLE[first + k], b = TABLE[second + k];
    value += (a.x * x + a.y + a.z + a.w) * 0.75f + (b.x * x + b.y + b.z + b.w) * 0.25f;
}
