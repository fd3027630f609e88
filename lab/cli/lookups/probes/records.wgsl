// Eight whole rows by value, each on its own.
var h = u32(x * 16777216.0);
for (var k = 0u; k < 8u; k++) {
    h = h * 2654435761u + 12345u;
    let row = $table[(h >> 8u) % rows];
    value += row.x * row.y + row.z * row.w;
}
