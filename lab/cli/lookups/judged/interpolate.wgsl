// Between two neighbouring rows.
let place = x * f32(rows - 1u);
let below = min(u32(place), rows - 2u);
let a = $table[below].x;
value = a + ($table[below + 1u].x - a) * (place - f32(below));
