// Down a tree of rows, eight levels, left or right by value.
unsigned int node = 0u;
for (unsigned int k = 0u; k < 8u; ++k) {
    const float4 row = TABLE[node];
    value += row.y * row.z;
    node = (2u * node + (x > row.w ? 2u : 1u)) % rows;
}
