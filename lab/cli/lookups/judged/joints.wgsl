// Two matrices of three rows by value, weighted.
let h = u32(x * 16777216.0) * 2654435761u;
let first = (h >> 8u) % (rows / 3u) * 3u;
let second = (h >> 12u) % (rows / 3u) * 3u;
for (var k = 0u; k < 3u; k++) {
    let a = $table[first + k];
    let b = $table[second + k];
    value += (a.x * x + a.y + a.z + a.w) * 0.75 + (b.x * x + b.y + b.z + b.w) * 0.25;
}
