// A sum of bells, one for each row.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    let away = (x - row.x) * row.z;
    value += row.w * exp(-away * away) + row.y;
}
