// The whole table in order; of a large one, 1024 rows from where the group begins.
const unsigned int steps = min(rows, 1024u);
const unsigned int start = i / 256u * 331u;
for (unsigned int k = 0u; k < steps; ++k) {
    const float4 row = TABLE[(start + k) % rows];
    value = (value * x + row.x) * row.y + row.z * x + row.w;
}
