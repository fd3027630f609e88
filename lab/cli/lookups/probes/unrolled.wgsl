// Every row, in order; how many at a time is the driver's choice.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    value += abs(x - row.x) * row.y + (x + row.z) * row.w;
}
