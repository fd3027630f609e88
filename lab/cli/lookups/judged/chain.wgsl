// Eight rows by value, each found by the one before. The fourth number of a row is between zero and one.
var h = u32(x * 16777216.0);
for (var k = 0u; k < 8u; k++) {
    let row = $table[(h >> 8u) % rows];
    value += row.y;
    h = h * 2654435761u + u32(row.w * 65536.0);
}
