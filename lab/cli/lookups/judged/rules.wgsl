// Thirty-two rows from where the group begins.
let start = i / 256u * 5u;
for (var k = 0u; k < 32u; k++) {
    let row = $table[(start + k) % rows];
    value += select(row.y, row.z, x < row.x) * row.w;
}
