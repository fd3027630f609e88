// Eight rows by value, all among the first sixteen.
var h = u32(x * 16777216.0);
for (var k = 0u; k < 8u; k++) {
    h = h * 2654435761u + 12345u;
    let row = $table[(h >> 8u) % 16u];
    value += row.x * x + row.y + row.z + row.w;
}
