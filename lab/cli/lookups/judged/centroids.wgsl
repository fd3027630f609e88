// The distance to the nearest of the table's points.
value = 1e30;
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    let d = vec2<f32>(x - row.x, 0.5 - row.y);
    value = min(value, d.x * d.x + d.y * d.y);
}
