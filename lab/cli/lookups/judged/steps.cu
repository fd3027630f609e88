// A sum of smooth steps, one for each row.
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    const float t = fminf(fmaxf(x * row.x + row.y, 0.0f), 1.0f);
    value += t * t * (3.0f - 2.0f * t) * row.z + row.w;
}
