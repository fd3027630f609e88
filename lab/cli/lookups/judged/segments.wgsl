// A line made of pieces: every piece adds its bend.
for (var r = 0u; r < rows; r++) {
    let row = $table[r];
    value += max(x - row.x, 0.0) * row.y + min(x - row.z, 0.0) * row.w;
}
