// The upper edge of a bundle of lines, damped as it goes.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    value = max(value * row.x + row.y, x * row.z + row.w);
}
