// A smooth curve through four neighbouring numbers.
let h = u32(x * 16777216.0) * 2654435761u;
let at = (h >> 8u) % (4u * rows - 3u);
let t = f32(h & 255u) / 256.0;
let a = $table[at / 4u][at % 4u];
let b = $table[(at + 1u) / 4u][(at + 1u) % 4u];
let c = $table[(at + 2u) / 4u][(at + 2u) % 4u];
let d = $table[(at + 3u) / 4u][(at + 3u) % 4u];
value = b + 0.5 * t * (c - a + t * (2.0 * a - 5.0 * b + 4.0 * c - d + t * (3.0 * (b - c) + d - a)));
