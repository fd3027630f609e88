// Twelve steps of a machine whose table says where it goes next.
let all = 4u * rows;
var at = u32(x * 65536.0) % all;
for (var k = 0u; k < 12u; k++) {
    let word = $table[at / 4u][at % 4u];
    value += word;
    at = (5u * at + u32(abs(word) * 65536.0) + 1u) % all;
}
