// One number by value, and a second that the first one names.
let all = 4u * rows;
let first = min(u32(x * f32(all)), all - 1u);
let step = $table[first / 4u][first % 4u];
let second = (first + 1u + u32(abs(step) * 65536.0)) % all;
value = step + $table[second / 4u][second % 4u] * x;
