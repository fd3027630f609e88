// Down a tree of rows, eight levels, left or right by value.
var node = 0u;
for (var k = 0u; k < 8u; k++) {
    let row = $table[node];
    value += row.y * row.z;
    node = (2u * node + select(1u, 2u, x > row.w)) % rows;
}
