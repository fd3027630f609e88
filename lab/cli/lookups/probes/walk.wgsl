// Sixty-four rows from where the group begins.
let start = i / 256u * 31u;
for (var k = 0u; k < 64u; k++) {
    let row = $table[(start + k) % rows];
    value = (value * x + row.x) * row.y + row.z * x + row.w;
}
