// Six pairs of neighbouring numbers by value, each on its own.
var h = u32(x * 16777216.0);
for (var k = 0u; k < 6u; k++) {
    h = h * 2246822519u + 374761393u;
    let at = (h >> 7u) % (4u * rows - 1u);
    value += $table[at / 4u][at % 4u] * $table[(at + 1u) / 4u][(at + 1u) % 4u];
}
