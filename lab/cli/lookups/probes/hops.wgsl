// Eight single numbers by value, each found with the one before.
var h = u32(x * 16777216.0);
for (var k = 0u; k < 8u; k++) {
    let at = (h >> 8u) % (4u * rows);
    let word = $table[at / 4u][at % 4u];
    value += word;
    h = h * 2654435761u + u32(abs(word) * 65536.0);
}
