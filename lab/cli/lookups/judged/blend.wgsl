// Sixteen weights that are the same for every item, each times one by value.
var h = u32(x * 16777216.0);
for (var k = 0u; k < 16u; k++) {
    h = h * 2654435761u + 12345u;
    let at = 16u + (h >> 8u) % (4u * rows - 16u);
    value += $table[k / 4u][k % 4u] * $table[at / 4u][at % 4u];
}
