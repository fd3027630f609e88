// Eight rows of the group's own band.
let band = i / 256u * 8u;
for (var k = 0u; k < 8u; k++) {
    let row = $table[(band + k) % rows];
    value = value * row.x + min(max(x, row.y), row.z) * row.w;
}
