// Four numbers by value, each found with the one before.
let h = u32(x * 16777216.0);
var sum = 65535u;
for (var k = 0u; k < 4u; k++) {
    let at = (((sum ^ (h >> (6u * k))) * 2654435761u) >> 8u) % (4u * rows);
    sum = sum * 31u + u32(abs($table[at / 4u][at % 4u]) * 65536.0);
}
value = f32(sum & 65535u) / 65536.0;
