// The upper edge of a bundle of lines, damped as it goes.
for (unsigned int r = 0u; r < rows; ++r) {
    const float4 row = TABLE[r];
    value = fmaxf(value * row.x + row.y, x * row.z + row.w);
}
