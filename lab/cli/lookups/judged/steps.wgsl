// A sum of smooth steps, one for each row.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    let t = min(max(x * row.x + row.y, 0.0), 1.0);
    value += t * t * (3.0 - 2.0 * t) * row.z + row.w;
}
