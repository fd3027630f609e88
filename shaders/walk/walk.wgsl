// The whole table in order; of a large one, 1024 rows from where the group begins.
let steps = min(rows, 1024u);
let start = i / 256u * 331u;
for (var k = 0u; k < steps; k++) {
    let row = $table[(start + k) % rows];
    value = (value * x + row.x) * row.y + row.z * x + row.w;
}
