"""A server made with the official package that asks: `python genuine_asking.py`."""

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, Field

server = MCPServer("genuine")


class Booking(BaseModel):
    """What the user fills in."""

    name: str = Field(min_length=2, description="On the ticket")
    seats: int = Field(default=1, ge=1, le=9)
    window: bool = False


@server.tool()
async def book(ctx: Context) -> str:
    """Book a seat."""
    result = await ctx.elicit(message="Who travels?", schema=Booking)
    return f"{result.action}: {result.data!r}" if result.action == "accept" else result.action


@server.tool()
async def sign_in(ctx: Context) -> str:
    """Sign in."""
    result = await ctx.elicit_url("Sign in first.", "https://login.example/start", "their-id")
    await ctx.session.send_elicit_complete("their-id")
    return result.action


server.run("stdio")
