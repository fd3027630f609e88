// Sixteen single numbers by value, each on its own.
var h = u32(x * 16777216.0);
for (var k = 0u; k < 16u; k++) {
    h = h * 2654435761u + 12345u;
    let at = (h >> 8u) % (4u * rows);
    value += $table[at / 4u][at % 4u];
}
