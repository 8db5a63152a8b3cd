module idle

go 1.21
